"""Uploads to the Hugging Face hub, by huggingface_hub and with its token."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from kbert.errors import KbertError, UploadError
from kbert.hub import model_cards
from kbert.hub.hugging_face import HUB_TIMEOUT, first_line
from kbert.hub.weight_files import is_licence


class Repository(NamedTuple):
    """A repository of models on the hub, which may have to be made.

    Attributes
    ----------
    name : str
        "owner/name".
    revision : str or None
        The branch to upload to; None is the main branch.
    private : bool or None
        Whether it is made as a private one; None is the owner's setting.
    commit : str or None
        What the branch was at when it was looked up. None where there is no such repository yet.
    files : frozenset of str
        The files of that commit.
    """

    name: str
    revision: str | None
    private: bool | None
    commit: str | None
    files: frozenset[str]

    @classmethod
    def find(cls, name: str, revision: str | None, private: bool | None, marker: str) -> Self:
        """Look a repository up, and refuse one that holds something else than what has the file ``marker``.

        Raises
        ------
        UploadError
            If the hub cannot be reached, lacks the branch, or the repository holds something else.
        TypeError, ValueError
            If the name cannot be that of a repository, or ``private`` is not what the repository is.
        """
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
        from huggingface_hub.utils import validate_repo_id

        if not isinstance(name, str):
            raise TypeError(f"repo must be a str, 'owner/name', got {type(name).__name__}.")
        name = name.removeprefix("hf://")
        try:
            validate_repo_id(name)
        except HFValidationError as error:
            raise ValueError(f"repo must be 'owner/name', got {name!r}. ({error})") from None
        if "/" not in name:
            raise ValueError(f"repo must be 'owner/name', got {name!r}: write whose it is.")
        with _explained(name, revision):
            try:
                info = HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
            except RepositoryNotFoundError:
                if revision is not None:
                    raise UploadError(
                        f"The hub has no repository {name!r}, so it has no branch {revision!r}. Leave revision out."
                    ) from None
                return cls(name, None, private, None, frozenset())
        files = frozenset(file.rfilename for file in info.siblings or [])
        others = sorted(
            file for file in files if file not in (".gitattributes", model_cards.FILE) and not is_licence(file)
        )
        if others and marker not in files:
            raise UploadError(
                f"{name!r} holds no saved estimator, but {', '.join(others[:3])}: nothing was uploaded. Choose another "
                "repository."
            )
        if private is not None and info.private is not None and info.private != private:
            is_now = "private" if info.private else "public"
            raise ValueError(
                f"private={private} was asked for, and {name!r} is {is_now}. Nothing was uploaded. Change that in the "
                "settings of the repository on the hub, or leave private out."
            )
        return cls(name, revision, private, info.sha, files)

    def upload(self, folder: Path, message: str, owned: frozenset[str]) -> tuple[str, bool]:
        """Upload the files of a folder as one commit, and make the repository first if need be.

        Parameters
        ----------
        folder : Path
        message : str
            Of the commit.
        owned : frozenset of str
            Files that are removed if the folder lacks them. All others stay, and so does a model card that somebody
            wrote or edited.

        Returns
        -------
        commit : str
        keeps_card : bool
            Whether the model card that was there is kept.

        Raises
        ------
        UploadError
            If the hub cannot be reached, wants another token, or refuses.
        """
        from huggingface_hub import HfApi

        with _explained(self.name, self.revision):
            if self.commit is None:
                HfApi().create_repo(self.name, private=self.private)
            keeps_card = self._has_card_of_its_own()
            info = HfApi().upload_folder(
                repo_id=self.name,
                folder_path=folder,
                revision=self.revision,
                commit_message=message,
                # If somebody else has changed it since, the hub refuses.
                parent_commit=self.commit,
                ignore_patterns=[model_cards.FILE] if keeps_card else None,
                delete_patterns=sorted(owned),
            )
            return info.oid, keeps_card

    def _has_card_of_its_own(self) -> bool:
        """Whether somebody wrote or edited the model card on the hub."""
        from huggingface_hub import hf_hub_download

        if model_cards.FILE not in self.files:
            return False
        with tempfile.TemporaryDirectory(prefix="kbert-") as folder:
            path = hf_hub_download(self.name, model_cards.FILE, revision=self.commit, local_dir=folder)
            return not model_cards.is_unedited(Path(path).read_bytes())


@contextmanager
def _explained(name: str, revision: str | None) -> Iterator[None]:
    """Turn an error of huggingface_hub, or of its HTTP client, into an UploadError that says what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalTokenNotFoundError, RevisionNotFoundError

    try:
        yield
    except KbertError:
        raise
    except RevisionNotFoundError as error:
        raise UploadError(f"{name!r} has no branch {revision!r} on the hub. Make it there, or leave it out.") from error
    except Exception as error:
        # Which HTTP client raises here, and what, depends on the version of huggingface_hub.
        status = getattr(getattr(error, "response", None), "status_code", None)
        text, reason = str(error).strip(), first_line(error)
        if isinstance(error, LocalTokenNotFoundError) or status == 401:
            remedy = (
                "The hub takes uploads only with a valid token that may write. Make one in the settings of your "
                "account on the hub, and log in with `hf auth login`, or set HF_TOKEN."
            )
        elif status == 403:
            remedy = (
                f"The token may not write there. Check the owner in {name!r}, and log in with a token that may write: "
                "`hf auth login`, or HF_TOKEN."
            )
        elif status in (409, 412):
            remedy = "The repository has changed meanwhile. Try again."
        elif status is None and "metadata" in text.lower():
            reason, remedy = text, "Correct what was given as card."
        elif constants.HF_HUB_OFFLINE:
            remedy = "Unset HF_HUB_OFFLINE, which forbids uploads, and try again."
        else:
            remedy = "Connect to the internet and try again, or save into a folder."
        raise UploadError(
            f"Nothing was uploaded to {name!r} on the hub {constants.ENDPOINT} ({type(error).__name__}: {reason}). "
            f"{remedy}"
        ) from error
