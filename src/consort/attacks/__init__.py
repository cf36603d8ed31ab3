"""Attacks on a federation, and the audit that carries them out on a finished run."""
