"""Other people's streaming PCA: two written here from their papers, because no package has them, and adapters to packages that exist."""
