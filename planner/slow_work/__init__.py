"""Why a job is slow, from what kept its boards at work, and what to try."""
