"""Pictures of schedules and traces: pure functions from a value to text, a table, or a file's contents."""
