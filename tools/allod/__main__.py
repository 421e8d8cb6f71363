"""Entry point of `python -m allod`."""

from allod.cli import main

if __name__ == "__main__":
    main()
