"""What Holdfast costs, measured against peers and against the bare limit."""
