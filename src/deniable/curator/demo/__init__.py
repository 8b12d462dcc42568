"""The demo: one story of one generated town, told in chapters, each by a capability of deniable at work."""

from deniable.curator.demo.story import Chapter as Chapter
from deniable.curator.demo.story import Stage as Stage
from deniable.curator.demo.story import tell as tell

