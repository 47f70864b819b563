"""This broker's replica of the metadata quorum: the shell around `penstock.consensus.raft`.

`quorum_node` carries out the effects of the core; `metadata_log` is its log, `snapshot_files` and
`quorum_state_file` what it keeps beside it; `peers` are its connections to other replicas.
"""
