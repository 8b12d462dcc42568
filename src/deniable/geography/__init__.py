"""People in places: a census down a tree of areas, maps on grids, flows between places, and traces."""
