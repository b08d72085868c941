package runs

import (
	"context"
	"strconv"

	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// AddRunItems handles POST /v1/runs/{run_id}/steps/{step_id}/items.
func (h *Handlers) AddRunItems(ctx context.Context, req oapi.AddRunItemsRequestObject) (oapi.AddRunItemsResponseObject, error) {
	in := make([]run.ItemRequest, len(req.Body.Items))
	for i, it := range req.Body.Items {
		does, err := child(it.Child, "/items/"+strconv.Itoa(i)+"/child")
		if err != nil {
			return nil, err
		}
		in[i] = run.ItemRequest{NewItem: run.NewItem{Type: it.ItemType, ItemID: it.ItemID, Ref: ask.Or(it.ItemRef, ""), Context: it.Context}, Child: does}
	}
	return answer.Write(ctx, func(ctx context.Context) ([]run.AddedItem, error) {
		return h.Runs.AddItems(ctx, req.RunID, req.StepID, req.Body.Generation, in)
	}, func(added []run.AddedItem) oapi.AddRunItemsResponseObject {
		return oapi.AddRunItems200JSONResponse{Body: oapi.AddedRunItems{Items: answer.Each(added, func(a *run.AddedItem) oapi.AddedRunItem {
			return oapi.AddedRunItem{Item: item(&a.Item), Created: a.Created}
		})}}
	}, oapi.AddRunItemsResponseObject.VisitAddRunItemsResponse)
}

// ListRunItems handles GET /v1/runs/{run_id}/steps/{step_id}/items.
func (h *Handlers) ListRunItems(ctx context.Context, req oapi.ListRunItemsRequestObject) (oapi.ListRunItemsResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[run.Item], error) {
		return h.Runs.Items(ctx, req.RunID, req.StepID, run.ItemStatus(ask.Or(req.Params.Status, "")), after, limit)
	}, item)
	if err != nil {
		return nil, err
	}
	return oapi.ListRunItems200JSONResponse{Body: oapi.RunItemList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListRunItems200ResponseHeaders{Link: list.Link}}, nil
}

// PatchRunItems handles PATCH /v1/runs/{run_id}/steps/{step_id}/items.
func (h *Handlers) PatchRunItems(ctx context.Context, req oapi.PatchRunItemsRequestObject) (oapi.PatchRunItemsResponseObject, error) {
	updates := make([]run.ItemUpdate, len(req.Body.Updates))
	for i, u := range req.Body.Updates {
		does, err := child(u.Child, "/updates/"+strconv.Itoa(i)+"/child")
		if err != nil {
			return nil, err
		}
		updates[i] = run.ItemUpdate{ID: u.ID, Status: run.ItemStatus(u.Status), ChildRunID: u.ChildRunID, Child: does}
	}
	items, err := h.Runs.UpdateItems(ctx, req.RunID, req.StepID, req.Body.Generation, updates)
	if err != nil {
		return nil, err
	}
	return oapi.PatchRunItems200JSONResponse{Items: answer.Each(items, item)}, nil
}
