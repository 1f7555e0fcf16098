"""What both versions of ACP have, and say differently.

The types of one version alone are in `acp_types` and `acp_types_v2`. What a client is
given is of the version that it speaks; asking for the kind tells mypy which type it is.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, Union

from . import acp_types as one, acp_types_v2 as two

AcpVersion: TypeAlias = Literal[1, 2]

ContentBlock: TypeAlias = Union[one.ContentBlock, two.ContentBlock]
McpServer: TypeAlias = Union[one.McpServer, two.McpServer]
PermissionOption: TypeAlias = Union[one.PermissionOption, two.PermissionOption]
SessionUpdate: TypeAlias = Union[one.SessionUpdate, two.SessionUpdate]
