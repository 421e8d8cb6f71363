"""What heap profilers cost the program that they watch."""
