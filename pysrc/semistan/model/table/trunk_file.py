"""The file that made embeddings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrunkFile:
    """The file that made embeddings.

    Attributes
    ----------
    sha256 : str
        Of its content; empty if the embeddings were in the table and the file was not found.
    output : str
        The output that is the embedding; empty if it is not known either.
    size : int
        Numbers of an embedding.
    """

    sha256: str
    output: str
    size: int
