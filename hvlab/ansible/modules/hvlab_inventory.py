# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""hvlab_inventory.yml documents this; the action plugin of that name does the work."""
