"""The dashboard in the browser. The only package that imports Streamlit."""
