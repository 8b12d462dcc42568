"""Privacy models: frozen conditions on the classes of a release, each with its declared monotonicity."""

from deniable.kanonymity.models.base import PrivacyModel as PrivacyModel
from deniable.kanonymity.models.base import holds as holds
from deniable.kanonymity.models.closeness import BetaLikeness as BetaLikeness
from deniable.kanonymity.models.closeness import Closeness as Closeness
from deniable.kanonymity.models.closeness import DeltaDisclosure as DeltaDisclosure
from deniable.kanonymity.models.closeness import Distance as Distance
from deniable.kanonymity.models.diversity import DistinctDiversity as DistinctDiversity
from deniable.kanonymity.models.diversity import EntropyDiversity as EntropyDiversity
from deniable.kanonymity.models.diversity import RecursiveDiversity as RecursiveDiversity
from deniable.kanonymity.models.size import AverageRisk as AverageRisk
from deniable.kanonymity.models.size import DeltaPresence as DeltaPresence
from deniable.kanonymity.models.size import KAnonymity as KAnonymity
from deniable.kanonymity.models.size import KMap as KMap
