package broker

import (
	"context"
	"log/slog"
)

// log writes a line that a client has caused, unless there were too many of its kind; kind is a
// constant. The attribute leftOut of a line counts those that were left out before it.
func (s *server) log(level slog.Level, kind, message string, args ...any) {
	leftOut, ok := s.limiter.Log(kind)
	if !ok {
		return
	}
	if leftOut > 0 {
		args = append(args, "leftOut", leftOut)
	}
	s.logger.Log(context.Background(), level, message, args...) //nolint:sloglint // callers pass constants
}

// The decisions about access. docs/brokers.md describes the lines.
const (
	granted      = "granted"
	accessDenied = "refused"
)

// audit writes the line about a decision on access: of the client, to connect, publish or subscribe.
func (c *client) audit(action, decision, message string, args ...any) {
	level := slog.LevelInfo
	if decision == accessDenied {
		level = slog.LevelWarn
	}
	identity := ""
	if c.id.Role != "" {
		identity = c.id.String()
	}
	args = append([]any{"audit", action, "decision", decision, "identity", identity, "session", c.sessionID, "remote", c.remote, "listener", c.listener}, args...)
	c.server.log(level, action+"_"+decision, message, args...)
}
