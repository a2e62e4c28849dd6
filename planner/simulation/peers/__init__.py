"""Published policies, written anew from their papers, to be compared with in one run."""
