"""``python -m farandole`` is the ``farandole`` command."""

from farandole.cli import main

main()
