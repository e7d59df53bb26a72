package object

import (
	"crypto/sha256"
	"encoding/hex"
)

// AgentHash returns the value of [AgentLabel] for an agent: the first 16 hex digits of the SHA-256 of
// its id, so that any id fits into a label.
func AgentHash(agentID string) string {
	sum := sha256.Sum256([]byte(agentID))
	return hex.EncodeToString(sum[:])[:16]
}
