#!/bin/sh
exec /sbin/modprobe nvidia
