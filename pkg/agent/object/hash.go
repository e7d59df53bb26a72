package object

import (
	"crypto/sha256"
	"encoding/hex"
)

// AgentHash is the value of [AgentLabel] for an agent: the first 16 hex digits of
// the SHA-256 of its id, so that any id fits in a label.
func AgentHash(agentID string) string {
	sum := sha256.Sum256([]byte(agentID))
	return hex.EncodeToString(sum[:])[:16]
}
