"""The process, Streamlit's app, own metrics."""
