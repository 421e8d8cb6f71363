"""Entry point of `./allod`."""

from clone.cli import main

if __name__ == "__main__":
    main()
