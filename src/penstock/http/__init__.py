"""What every HTTP service needs: guarded hosts and origins, connections, request ids, one page."""
