package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// Inbox returns what waits for a person in a flow, the first asked first.
func (c *Client) Inbox(ctx context.Context, flow string) ([]InboxItem, error) {
	var all []InboxItem
	query := url.Values{"flow_id": {flow}, "limit": {"500"}}
	for {
		var page struct {
			Items []InboxItem `json:"items"`
			Next  string      `json:"next_cursor"`
		}
		if _, err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/v1/inbox?" + query.Encode()}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			break
		}
		query.Set("cursor", page.Next)
	}
	slices.Reverse(all)
	return all, nil
}

// Waitpoints returns the open waitpoints of an execution.
func (c *Client) Waitpoints(ctx context.Context, execution string) ([]Waitpoint, error) {
	var list struct {
		Items []Waitpoint `json:"items"`
	}
	_, err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/v1/executions/" + execution + "/waitpoints?limit=500"}, &list)
	return list.Items, err
}

// Frames calls yield for each frame of the current attempt of an execution, from a position of its stream on.
func (c *Client) Frames(ctx context.Context, execution, from string, yield func(Frame)) error {
	query := url.Values{"from": {from}, "limit": {"1000"}}
	for {
		var page struct {
			Frames []Frame `json:"frames"`
			Next   string  `json:"next_cursor"`
		}
		path := "/v1/executions/" + execution + "/attempts/current/stream?" + query.Encode()
		if _, err := c.Do(ctx, Request{Method: http.MethodGet, Path: path}, &page); err != nil {
			return err
		}
		for _, f := range page.Frames {
			yield(f)
		}
		if page.Next == "" {
			return nil
		}
		query = url.Values{"cursor": {page.Next}, "limit": {"1000"}}
	}
}

// UnmarshalJSON decodes a frame with its payload.
func (f *Frame) UnmarshalJSON(b []byte) error {
	type plain Frame
	if err := json.Unmarshal(b, (*plain)(f)); err != nil {
		return err
	}
	if f.Encoding != "base64" {
		f.Payload = []byte(f.Text)
		return nil
	}
	var err error
	if f.Payload, err = base64.StdEncoding.DecodeString(f.Text); err != nil {
		return fmt.Errorf("frame %s: %w", f.ID, err)
	}
	return nil
}
