"""Favorites: users counted by account, and joined with their favorite color and cheese, from three keyed topics."""
