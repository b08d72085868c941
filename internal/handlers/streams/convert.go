package streams

import (
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// frameOf reads frame number i of a request.
func frameOf(in *oapi.NewFrame, i int) (stream.Frame, error) {
	f := stream.Frame{
		Kind: stream.Kind(ask.Or(in.Kind, oapi.FrameKindStdout)), Mode: stream.Mode(ask.Or(in.Mode, oapi.FrameModeDurable)),
		Encoding: stream.Encoding(ask.Or(in.Encoding, oapi.FrameEncodingUTF8)), CorrelationID: ask.Or(in.CorrelationID, ""), Key: ask.Or(in.FrameKey, ""),
	}
	if f.Type = ask.Or(in.FrameType, ""); f.Type == "" {
		f.Type = string(f.Kind)
	}
	if b := in.BestEffort; b != nil {
		f.Live = stream.Live{TTL: ask.Millis(ask.Or(b.TTLMs, 0)), Floor: ask.Or(b.MaxlenFloor, 0), Ceiling: ask.Or(b.MaxlenCeiling, 0), Alpha: ask.Or(b.EmaAlpha, 0)}
	}
	var err error
	if f.Payload, err = stream.Decode(in.Payload, f.Encoding, i); err == nil && f.Mode == stream.Summarised {
		err = stream.CheckPatch(f.Payload, i)
	}
	return f, err
}

func receipt(r stream.Receipt) oapi.AppendedFrames {
	out := oapi.AppendedFrames{Frames: make([]oapi.AppendedFrame, len(r.Frames)), FrameCount: r.Count, Directives: worker.Directives(r.Directives)}
	for i, f := range r.Frames {
		out.Frames[i].ID = f.ID.String()
		if f.Duplicate {
			out.Frames[i].Duplicate = new(true)
		}
	}
	if r.Version > 0 {
		out.SummaryVersion = &r.Version
	}
	return out
}

func body(page *stream.Page) oapi.Stream {
	out := oapi.Stream{Frames: make([]oapi.Frame, len(page.Frames)), FrameCount: page.Count, ClosedAt: wire.TimeOrNull(page.ClosedAt)}
	if page.AttemptIndex != execution.NoAttempt {
		out.AttemptIndex = new(int32(page.AttemptIndex))
	}
	if page.Closed() {
		out.ClosedReason = new(oapi.CloseReason(page.ClosedReason))
	}
	if page.Trimmed > stream.Start {
		out.TrimmedThrough = new(page.Trimmed.String())
	}
	for i := range page.Frames {
		out.Frames[i] = frame(&page.Frames[i])
	}
	return out
}

func frame(f *stream.Frame) oapi.Frame {
	return oapi.Frame{
		ID: f.ID.String(), FrameType: f.Type, Kind: oapi.FrameKind(f.Kind), Payload: f.Encode(), Encoding: oapi.FrameEncoding(f.Encoding),
		At: wire.Time(f.ID.At()), Mode: oapi.FrameMode(f.Mode), CorrelationID: wire.TextOrNull(f.CorrelationID),
	}
}

func summary(s stream.Summary) oapi.Summary {
	return oapi.Summary{Document: s.Document, Version: s.Version, PatchKind: stream.PatchKind, FirstAppliedAt: wire.Time(s.FirstAppliedAt), LastUpdatedAt: wire.Time(s.LastUpdatedAt)}
}
