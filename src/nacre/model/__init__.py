"""Immutable types for plans, requests, responses, outcomes and refusals. The modules in `model`
import no other package of nacre."""
