"""`python -m ctxproxy`."""

from ctxproxy.cli import main

if __name__ == "__main__":
    main()
