"""Running schedules: compiled programs, and the engines that carry them out."""
