package broker

import (
	"context"
	"log/slog"
)

// quietHandler is the log of mochi-mqtt. It leaves out attributes that hold whole packets,
// payload and password included, and takes everyday events down to debug level.
type quietHandler struct{ slog.Handler }

func (q quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, quietLevel(level))
}

func (q quietHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, quietLevel(r.Level), r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "pk" && a.Key != "packet" {
			out.AddAttrs(a)
		}
		return true
	})
	return q.Handler.Handle(ctx, out)
}

func (q quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{q.Handler.WithAttrs(attrs)}
}

func (q quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{q.Handler.WithGroup(name)}
}

func quietLevel(level slog.Level) slog.Level {
	if level <= slog.LevelInfo {
		return slog.LevelDebug
	}
	return level
}
