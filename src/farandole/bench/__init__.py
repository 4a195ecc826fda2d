"""Measuring real runs: trials on this machine, with every result checked."""
