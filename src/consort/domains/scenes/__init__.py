"""Scenes with an answer for every pixel: segmentation, depth, normals, edges, key points."""
