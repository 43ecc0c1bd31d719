"""`python -m luxmeter` is the `luxmeter` command."""

from luxmeter.view import main

if __name__ == "__main__":
    main()
