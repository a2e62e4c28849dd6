"""Run, outlooks, problem, what-if, wiring."""
