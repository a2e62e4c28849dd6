"""What a scheduling policy would have done: applications, jobs, peers and the rounds between."""
