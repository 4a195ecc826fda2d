"""Farandole: collective operations, written once as a schedule; proven, priced, shown and run."""
