"""Page frame, navigation, scope, button, alert strip."""
