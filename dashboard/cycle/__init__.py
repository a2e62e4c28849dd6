"""Run, outlooks, problem, what-if, replanning, wiring."""
