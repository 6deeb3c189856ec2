# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""hvlab_wheels.yml documents this; the action plugin of that name does the work."""
