"""What one sees of a cluster that PD schedules: moments, decisions, lives of operators, and what follows from them."""
