# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""hvlab_preflight.yml documents this; the action plugin of that name does the work."""
