"""Pellucid: a decoder-only transformer that lets the light through."""
