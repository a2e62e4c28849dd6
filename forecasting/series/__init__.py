"""History by slot of jobs and groups, job keys, past runs, window maxima."""
