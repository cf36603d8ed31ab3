"""Federations among institutions: credentials, a server, clients that come and go."""
