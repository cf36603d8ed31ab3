"""What attackers try on a federation, and the audit that tries it on a finished run."""
