"""What is stuck, since when, by which rule; derived on read, recorded by the sweeper."""
