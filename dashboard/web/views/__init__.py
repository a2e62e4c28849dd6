"""One page per file, registered in `dashboard.web.app`."""
