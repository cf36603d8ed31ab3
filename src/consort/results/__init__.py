"""What runs measured: results, tables, comparisons and claims."""
