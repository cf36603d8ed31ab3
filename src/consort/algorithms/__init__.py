"""One file per algorithm; the name of the file is the name in recipes."""
