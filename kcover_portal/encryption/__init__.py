"""Encrypts secrets in the database: kubeconfigs, addresses and keys of channels, shared secrets, TOTP seeds.

Belongs here: the keys, the format of an encrypted value, the model field, and rotation. Never here: who may see or
change a secret. ``docs/operations/install/secrets.md`` describes keys and their rotation.
"""

from kcover_portal.encryption.envelope import SecretUnreadable as SecretUnreadable, is_for_engine as is_for_engine
from kcover_portal.encryption.fields import (
    EncryptedTextField as EncryptedTextField,
    ModelWithSecrets as ModelWithSecrets,
    fields_of as fields_of,
    is_out_of_reach as is_out_of_reach,
    is_set as is_set,
    peek as peek,
    stored as stored,
)
from kcover_portal.encryption.keyring import KeysUnusable as KeysUnusable
